"""Values in nested dictionaries and lists: where they are, and copies with other ones."""


def paths(item, place=()):
    """The places of all values in nested dictionaries and lists."""
    members = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list | tuple) else ()
    for key, each in members:
        yield (*place, key)
        yield from paths(each, (*place, key))


def changed(item, place, value):
    """A copy with another value, or without the key for ``...``."""
    found = dict(item) if isinstance(item, dict) else list(item)
    key, *rest = place
    if rest:
        found[key] = changed(found[key], rest, value)
    elif value is ...:
        del found[key]
    else:
        found[key] = value
    return found
