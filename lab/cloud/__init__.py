"""Tencent Cloud as far as public addresses need it, on a port of this machine."""

from lab.cloud.config import SECRET_ID, SECRET_KEY, Knobs
from lab.cloud.server import Cloud, serving

__all__ = ["SECRET_ID", "SECRET_KEY", "Cloud", "Knobs", "serving"]
