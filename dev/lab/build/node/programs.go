//go:build tools

// Package node names what a real node runs, so that go.sum covers all that it needs.
package node

import (
	_ "drawbridge/lab/build/node/pause"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
