"""Connections between ranks: rank 0 listens, and the other ranks connect with a key that both have."""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from ..base.errors import FileAccessError
from ..base.system_error import reason

KEY_BYTES, RANK_BYTES = 32, 4
POLL_SECONDS = 0.5
CONNECT_SECONDS = 120


def listener(host: str, port: int = 0) -> socket.socket:
    """A socket that listens. FileAccessError for an address that is not this machine's, or taken."""
    try:
        return socket.create_server((host, port), backlog=64)
    except (OSError, UnicodeError) as error:
        raise _unreachable("listen", host, port, error) from error


def _unreachable(verb: str, host: str, port: int, error: OSError | UnicodeError) -> FileAccessError:
    what = reason(error) if isinstance(error, OSError) else "not a host name"
    why = f"cannot {verb} at {host!r}, port {port}: {what}"
    return FileAccessError("E-RANK-ADDRESS", None, why, hint="Set MASTER_ADDR and MASTER_PORT")


def accepted(server: socket.socket, key: bytes, size: int, check: Callable[[], None]) -> list[Connection]:
    """The connections of ranks 1 to `size` - 1, in order.

    Args:
        check: is called while they are awaited; raises an error where one has ended.

    Raises FileAccessError if a rank does not connect for `CONNECT_SECONDS`.
    """
    found: dict[int, Connection] = {}
    deadline = time.monotonic() + CONNECT_SECONDS
    server.settimeout(POLL_SECONDS)
    while len(found) < size - 1:
        check()
        if time.monotonic() > deadline:
            why = f"{len(found) + 1} of {size} ranks have connected after {CONNECT_SECONDS} seconds"
            raise FileAccessError("E-RANK-DIED", None, why, hint="Start the other ranks, or look into their messages")
        try:
            peer, _ = server.accept()
        except TimeoutError:
            continue
        rank = _known(peer, key)
        if rank is not None and 0 < rank < size and rank not in found:
            found[rank] = _connection(peer)
        else:
            peer.close()
    return [found[rank] for rank in sorted(found)]


def _known(peer: socket.socket, key: bytes) -> int | None:
    """The rank of a peer that proves to have the key; None otherwise."""
    peer.settimeout(5)
    try:
        nonce = secrets.token_bytes(KEY_BYTES)
        peer.sendall(nonce)
        answer = _read(peer, KEY_BYTES + RANK_BYTES)
    except OSError:
        return None
    digest, rank = answer[:KEY_BYTES], answer[KEY_BYTES:]
    return int.from_bytes(rank, "little") if hmac.compare_digest(digest, _digest(key, nonce + rank)) else None


def connected(host: str, port: int, key: bytes, rank: int) -> Connection:
    """The connection of a rank to rank 0, which is awaited for `CONNECT_SECONDS`."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            peer = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
            nonce = _read(peer, KEY_BYTES)
            number = rank.to_bytes(RANK_BYTES, "little")
            peer.sendall(_digest(key, nonce + number) + number)
            return _connection(peer)
        except UnicodeError as error:
            raise _unreachable("connect", host, port, error) from error
        except OSError as error:
            if time.monotonic() > deadline:
                why = f"rank 0 does not answer at {host}:{port}"
                raise FileAccessError("E-RANK-DIED", None, why, hint="Start rank 0 first") from error
            time.sleep(POLL_SECONDS)


def _digest(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _read(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


def _connection(peer: socket.socket) -> Connection:
    """A connection of a socket, whose small messages are sent at once."""
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(peer.detach())
