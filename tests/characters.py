"""The characters that tests of tokenizers go through."""

import itertools

# All code points of the planes that have characters, and one in 61 of the rest: a fifth of Unicode, in a fifth of the
# time. Of the rest, 0x34000 to 0xDFFFF and from 0xE1000, none is assigned: they are for private use, or for nothing.
EVERY = [
    chr(code)
    for code in itertools.chain(range(0x34000), range(0xE0000, 0xE1000), range(0x34000, 0x110000, 61), [0x10FFFF])
    if not 0xD800 <= code < 0xE000
]
