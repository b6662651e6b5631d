"""A damaged value of a simulated disk, apart from it: mypyc compiles no subclass of bytes."""


class DamagedValue(bytes):
    """A value of which a bit was flipped: the real store has a checksum for it."""
