"""[metrics]: where Prometheus finds the figures of this host."""

from pathlib import Path
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from tarry.config.kinds import FILE
from tarry.config.parser import SettingsSource
from tarry.config.server import ADDRESSES, HOST_NAMES, SOME_TIME, ServerConfig, absolute_paths
from tarry.model.listen_address import ListenAddress


class MetricsConfig(Struct, frozen=True):
    """[metrics]. Without an address and a file there are no figures besides those of [server]."""

    listen: Annotated[tuple[ListenAddress, ...], ADDRESSES] = ()
    """The keeper serves `/metrics` here, to anybody."""
    host_names: Annotated[tuple[str, ...], HOST_NAMES] = ()
    """Names by which Prometheus calls it, besides addresses and localhost; a request for another name is refused."""
    textfile: Annotated[Path | None, FILE] = None
    """The keeper writes the figures to this file, for node_exporter."""
    every: Annotated[float, SOME_TIME] = 15.0
    """Seconds between two writes of the file."""

    @property
    def is_on(self) -> bool:
        """Whether the keeper shows figures at all."""
        return bool(self.listen) or self.textfile is not None

    @property
    def addresses(self) -> dict[str, tuple[ListenAddress, ...]]:
        """The addresses by the name of their door, `metrics`."""
        return {"metrics": self.listen} if self.listen else {}


def check_metrics(config: MetricsConfig, server: ServerConfig, source: SettingsSource) -> None:
    """ConfigError if [metrics] contradicts itself or [server]."""
    taken = {address for addresses in server.addresses.values() for address in addresses}
    for address in config.listen:
        if address in taken:
            raise source.wrong(("metrics", "listen"), "another address than [server] has", str(address))
    if config.textfile is not None and config.textfile.suffix != ".prom":
        wanted = "a file whose name ends in .prom, since node_exporter reads no others"
        raise source.wrong(("metrics", "textfile"), wanted, str(config.textfile))


def resolve_metrics(config: MetricsConfig, home: Path) -> MetricsConfig:
    """With absolute paths; relative ones start at `home`."""
    return replace(
        config, listen=absolute_paths(config.listen, home), textfile=config.textfile and home / config.textfile
    )
