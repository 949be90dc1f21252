"""The log of gunicorn, which serves the webhooks and the page in the cluster."""

from gunicorn.glogging import Logger


class RootLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's messages go to the root logger."""

    def setup(self, cfg: object) -> None:
        super().setup(cfg)
        for logger in (self.error_log, self.access_log):
            logger.handlers.clear()
            logger.propagate = True
