"""The console's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path

from pydantic import Field

from aetheris.runtime.process.settings import HttpSettings


class ConsoleSettings(HttpSettings):
    """Where the gateway is, how people sign in, and how long they stay."""

    gateway_url: str = Field("http://127.0.0.1:8080", description="The gateway's HTTP address, as the console calls it")
    console_url: str = Field(
        "", description="The console's own address, as browsers know it; unset: http://localhost and its port"
    )
    login_issuer: str = Field("", description="OpenID provider by which people sign in; unset: by one-time links alone")
    login_client_id: str = Field("", description="The console's name at that provider")
    login_client_secret: Path | None = Field(
        None, description="File with its secret there; unset: a public client (PKCE is used in any case)"
    )
    login_scope: str = Field("openid", description="What is asked for at a login, separated by spaces")
    login_resource: str = Field("", description="Whom the access token is for (RFC 8707); unset: not said")
    trace_url: str = Field(
        "",
        pattern=r"^(https?://\S*\{trace_id\}\S*)?$",
        description="Where a browser finds a trace, with {trace_id} in it; unset: its id is shown",
    )
    session_idle_s: float = Field(1800.0, gt=0, description="Silence after which a session ends")
    session_s: float = Field(43200.0, gt=0, description="How long a session lasts at most")

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """With the secret at the provider."""
        own = (self.login_client_secret,) if self.login_client_secret is not None else ()
        return (*super().credential_files, *own)
