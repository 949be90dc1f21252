"""The vendor's own clients, unmodified, as callers of the emulated cloud."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tencentcloud.common.credential import Credential
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.cvm.v20170312 import cvm_client
from tencentcloud.cvm.v20170312 import models as cvm_models
from tencentcloud.tag.v20180813 import models as tag_models
from tencentcloud.tag.v20180813 import tag_client
from tencentcloud.vpc.v20170312 import models as vpc_models
from tencentcloud.vpc.v20170312 import vpc_client

from dev.lab.cloud import SECRET_ID, SECRET_KEY

REGION = "ap-singapore"
PRODUCTS = [
    (vpc_client.VpcClient, vpc_models),
    (cvm_client.CvmClient, cvm_models),
    (tag_client.TagClient, tag_models),
]


class Sdk:
    """Calls by name, through the typed client of the product that has the action."""

    def __init__(
        self,
        endpoint: str,
        secret_id: str = SECRET_ID,
        secret_key: str = SECRET_KEY,
        token: str | None = None,
        *,
        region: str = REGION,
        timeout: float = 10,
    ) -> None:
        http = HttpProfile(protocol="http", endpoint=endpoint, reqTimeout=timeout)
        profile = ClientProfile(httpProfile=http, language="en-US")
        credential = Credential(secret_id, secret_key, token)
        self.clients = [(make(credential, region, profile), models) for make, models in PRODUCTS]
        self.vpc, self.cvm, self.tag = (client for client, _ in self.clients)

    def __call__(self, action: str, **params: Any) -> dict[str, Any]:
        """The response as the typed client understood it. Raises TencentCloudSDKException."""
        for client, models in self.clients:
            if hasattr(client, action):
                request = getattr(models, f"{action}Request")()
                request.from_json_string(json.dumps(params))
                return json.loads(getattr(client, action)(request).to_json_string())
        raise AttributeError(action)

    def refused(self, action: str, **params: Any) -> str:
        """The error code that this call must be answered with."""
        with pytest.raises(TencentCloudSDKException) as caught:
            self(action, **params)
        return caught.value.code

    def close(self) -> None:
        for client, _ in self.clients:
            client.request.conn._session.close()


@contextmanager
def sdk(endpoint: str, *args: Any, **kwargs: Any) -> Iterator[Sdk]:
    caller = Sdk(endpoint, *args, **kwargs)
    try:
        yield caller
    finally:
        caller.close()


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK heeds NO_PROXY in a separate way, so that there must be no proxy at all."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
