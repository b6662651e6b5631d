"""An outside judge: the safety invariants of the KIP-966 model, recomputed from traces.

Written from the model (Vanlightly/kafka-tlaplus, `kip_966_properties.tla`) and from nothing else:
no module here imports another of this project, but for the decoder of JSON, so that no error of
ours is judged by itself. docs/outside-judge.md has the table of the invariants, and where this
judge and ours disagree.
"""
