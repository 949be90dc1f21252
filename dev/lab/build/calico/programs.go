//go:build tools

// Package calico names Calico's CNI plugin and its node program, so that go.sum covers all that they need.
package calico

import (
	_ "github.com/projectcalico/calico/cni-plugin/cmd/calico"
	_ "github.com/projectcalico/calico/node/cmd/calico-node"
)
