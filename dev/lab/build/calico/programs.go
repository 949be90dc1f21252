//go:build tools

// Package calico names Calico's CNI plugin, so that go.sum covers all that it needs.
package calico

import _ "github.com/projectcalico/calico/cni-plugin/cmd/calico"
