"""The calls that are made, at what rate the cloud documents each, and which may be repeated blindly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Service:
    name: str
    version: str


@dataclass(frozen=True)
class Api:
    """*rate* is the documented number of calls a second; *repeatable*: two of the same do what one does."""

    action: str
    service: Service
    rate: int
    writes: bool = False
    repeatable: bool = True


VPC = Service("vpc", "2017-03-12")
CVM = Service("cvm", "2017-03-12")
TAG = Service("tag", "2018-08-13")
STS = Service("sts", "2018-08-13")
CLB = Service("clb", "2018-03-17")

DESCRIBE_ADDRESSES = Api("DescribeAddresses", VPC, 20)
DESCRIBE_QUOTA = Api("DescribeAddressQuota", VPC, 10)
# The ClientToken makes it repeatable.
ALLOCATE = Api("AllocateAddresses", VPC, 10, writes=True)
# A repetition of these could undo what someone did in between.
ASSOCIATE = Api("AssociateAddress", VPC, 10, writes=True, repeatable=False)
DISASSOCIATE = Api("DisassociateAddress", VPC, 10, writes=True, repeatable=False)
RELEASE = Api("ReleaseAddresses", VPC, 10, writes=True, repeatable=False)
MODIFY_BANDWIDTH = Api("ModifyAddressesBandwidth", VPC, 20, writes=True, repeatable=False)
DESCRIBE_INSTANCES = Api("DescribeInstances", CVM, 40)
# That a tag is there, or is not, counts as success.
CREATE_TAGS = Api("CreateTags", TAG, 20, writes=True)
DELETE_TAGS = Api("DeleteTags", TAG, 20, writes=True)
DESCRIBE_TARGETS = Api("DescribeTargets", CLB, 20)
DESCRIBE_TARGET_HEALTH = Api("DescribeTargetHealth", CLB, 20)
# A repetition could undo what someone did in between; the caller reads back what became of it.
MODIFY_TARGET_WEIGHTS = Api("BatchModifyTargetWeight", CLB, 20, writes=True, repeatable=False)
