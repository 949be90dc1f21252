"""The settings of the serving certificate."""

from typing import Literal, Self

from pydantic import model_validator

from settings.values import Model, Name, Period


class SelfManaged(Model):
    """How long self-managed certificates last; *overlap* is also how far clocks may differ at their ends."""

    ca_validity: Period = 365 * 86400.0
    leaf_validity: Period = 90 * 86400.0
    renew_before: Period = 30 * 86400.0
    overlap: Period = 60.0

    @model_validator(mode="after")
    def _each_period_fits_into_the_next(self) -> Self:
        """Else a new certificate would be renewed at once, again and again."""
        self.check_shorter("overlap", "renewBefore", "leafValidity", "caValidity")
        return self


class CertsSettings(Model):
    """Only with self-managed do the controllers write the Secret and the webhook configurations."""

    mode: Literal["self-managed", "cert-manager", "files"] = "files"
    secret_name: Name = "drawbridge-webhook-tls"  # noqa: S105 - the name of a Secret, not its content
    service_name: Name = "drawbridge-webhook"
    configuration_name: Name = "drawbridge"
    self_managed: SelfManaged = SelfManaged()
