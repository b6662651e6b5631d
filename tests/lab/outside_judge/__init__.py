"""An outside judge: it checks the safety invariants of the KIP-966 model on the traces of a run.

Written from the model (Vanlightly/kafka-tlaplus, `kip_966_properties.tla`) and nothing else. So
that it shares no mistake with our own checks, no module here imports another of this project but
the decoder of JSON. docs/outside-judge.md lists the invariants, and where the two judges disagree.
"""
