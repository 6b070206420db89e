"""A server of SSH on loopback that runs what it is asked to run: ``python sshd.py PORT FOLDER``.

The folder gets ``.ssh`` with a key that the server lets in, and with the server's key as that of a known host.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import asyncssh


async def _run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(process.command or "", shell=True, **pipes)
    await process.redirect(stdout=child.stdout, stderr=child.stderr)
    process.exit(await asyncio.to_thread(child.wait))


async def _serve(port: int, folder: Path) -> None:
    home, own, persons = folder / ".ssh", *(asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    home.mkdir(parents=True)
    persons.write_private_key(home / "id_ed25519")
    public = own.export_public_key().decode()
    (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
    (home / "authorized").write_bytes(persons.export_public_key())
    keys = {"server_host_keys": [own], "authorized_client_keys": str(home / "authorized")}
    async with await asyncssh.listen("127.0.0.1", port, process_factory=_run, encoding=None, **keys):
        (folder / "ready").touch()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2])))
