"""XXH64 as its description has it, in Python's own integers."""

_MASK = 2**64 - 1
_A, _B, _C = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_D, _E = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _turned(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _turned(lane + word * _B, 31) * _A & _MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 of bytes."""
    at, total = 0, seed + _E
    if len(data) >= 32:
        lanes = [seed + _A + _B, seed + _B, seed, seed - _A]
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = _round(lanes[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        total = sum(_turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _A + _D) & _MASK
    total = (total + len(data)) & _MASK
    while at + 8 <= len(data):
        total = (_turned(total ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _A + _D) & _MASK
        at += 8
    if at + 4 <= len(data):
        total = (_turned(total ^ int.from_bytes(data[at : at + 4], "little") * _A & _MASK, 23) * _B + _C) & _MASK
        at += 4
    for byte in data[at:]:
        total = _turned(total ^ byte * _E & _MASK, 11) * _A & _MASK
    total = (total ^ total >> 33) * _B & _MASK
    total = (total ^ total >> 29) * _C & _MASK
    return total ^ total >> 32
