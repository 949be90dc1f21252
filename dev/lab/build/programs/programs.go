//go:build tools

// Package programs names what the lab builds, so that go.sum covers all that it needs.
package programs

import (
	_ "drawbridge/lab/build/programs/configs"
	_ "drawbridge/lab/build/programs/gate"
	_ "drawbridge/lab/build/programs/noop"
	_ "go.etcd.io/etcd/server/v3"
	_ "helm.sh/helm/v4/cmd/helm"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "sigs.k8s.io/kwok/cmd/kwok"
	_ "sigs.k8s.io/kwok/cmd/kwokctl"
)
