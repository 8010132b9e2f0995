"""stub"""

from streamdr.core.addresses import parse_location


def expand(paths):
    return [parse_location(p) for p in ([paths] if isinstance(paths, str) else paths)]
