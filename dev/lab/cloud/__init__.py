"""An emulator of Tencent Cloud: public addresses, instances and tags, on a port of this machine."""

from dev.lab.cloud.config import SECRET_ID, SECRET_KEY, Knobs
from dev.lab.cloud.server import Cloud, serving

__all__ = ["SECRET_ID", "SECRET_KEY", "Cloud", "Knobs", "serving"]
