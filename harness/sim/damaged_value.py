"""A damaged value of a simulated disk, in a module of its own because mypyc compiles no subclass of
bytes."""


class DamagedValue(bytes):
    """A stored value with one flipped bit. A real store notices that by its checksum."""
