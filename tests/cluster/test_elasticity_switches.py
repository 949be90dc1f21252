"""The two switches decide whether a pod without local room may go to super nodes, and are followed live."""

from __future__ import annotations

from lab.session import Lab
from tests.cluster.elasticity import TOO_LARGE, Shop, asking, switch_all, switched, template

KEPT = "KeptAtHome"


def test_a_pod_that_was_kept_goes_as_it_stands_when_the_switch_for_all_is_opened(elastic_lab: Lab) -> None:
    switch_all(elastic_lab, "false")
    try:
        shop = Shop(elastic_lab)
        shop.run("kept", template(**asking(TOO_LARGE)))
        shop.run("own", template(switched("true"), **asking(TOO_LARGE)))
        shop.deploy("web", 3, template({"LOCAL_REPLICAS": "1"}))
        assert "global=false local=unset" in shop.await_event("kept", KEPT)
        shop.await_away("own")
        shop.settle("web", 3)
        before = shop.pod("kept")
        assert (before.spec.node_name, len(shop.home("web"))) == ("", 3)
    finally:
        switch_all(elastic_lab, "true")
    shop.await_away("kept")
    assert shop.pod("kept").metadata.uid == before.metadata.uid
    assert len(shop.home("web")) == 3
    switch_all(elastic_lab, "")
