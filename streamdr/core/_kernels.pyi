from streamdr.core.blocks import Array

VERSION: int

def observe(values: Array, centre: Array, residual: Array, mask: Array, /) -> None: ...
def invert(
    packed: Array, vectors: Array, solved: Array, diagonal: Array, quadratic: Array, with_outer: bool, /
) -> None: ...
