"""Drawing: SVG primitives and charts."""
