"""HTTP as uvicorn reads it with httptools, with an end to what a client may send before its request begins."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = (
    64 * 1024
)  # of the request line and the headers, as uvicorn's other reader has it


class BoundedProtocol(HttpToolsProtocol):
    """A request whose head does not end is refused with 400; the parser itself would keep whatever comes."""

    _is_in_head = True  # of a request, or before one
    _head_bytes = 0  # of it so far
    _has_ended_one = False  # since the data that is at hand began

    def data_received(self, data: bytes) -> None:
        """As much as may be of it is parsed."""
        self._has_ended_one = False
        super().data_received(data)
        if not self._is_in_head or self._has_ended_one:
            # Where a head begins in the middle of what came, it is counted from the next piece on.
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(
                f"The request line and the headers are longer than {HEAD_BYTES_MAX} bytes; send less."
            )

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request has ended, and another one may follow."""
        self._is_in_head, self._has_ended_one = True, True
        super().on_message_complete()
