"""The thin edge to Tencent Cloud: addresses, instances and tags as values, each call bounded in time and rate."""
