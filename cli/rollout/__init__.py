"""`drawbridge rollout`: see the rollout of an IngressDaemonSet, pause and resume it, or start one."""
