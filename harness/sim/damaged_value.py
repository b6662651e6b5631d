"""A damaged value of a simulated disk; mypyc, which skips this module, cannot subclass bytes."""


class DamagedValue(bytes):
    """A stored value with one flipped bit. A real store notices that by its checksum."""
