"""RAW: float32 as it is, exact."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from zerolayer.execution.codecs.base import (
    BlockKV,
    Buffer,
    assemble,
    check_finite,
    open_block,
    pack_header,
    split_body,
)


class Raw:
    """Float32 keys, then values. Bit exact, twice the bytes of fp16."""

    name: ClassVar[str] = "RAW"
    code: ClassVar[int] = 1

    def encode(self, kv: BlockKV) -> bytes:
        """See Codec.encode."""
        check_finite(self, kv)
        keys, values = np.ascontiguousarray(kv.keys), np.ascontiguousarray(kv.values)
        return assemble(pack_header(self.code, kv.shape), keys, values)

    def decode(self, data: Buffer, out: BlockKV | None = None) -> BlockKV:
        """See Codec.decode."""
        shape, body = open_block(self, data, out)
        keys, values = split_body(self, body, [(np.float32, shape), (np.float32, shape)])
        kv = out if out is not None else BlockKV.empty(shape)
        np.copyto(kv.keys, keys)
        np.copyto(kv.values, values)
        return kv
