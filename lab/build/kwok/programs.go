//go:build tools

// Package programs names what the lab builds, so that go.sum covers all that it needs.
package programs

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
	_ "sigs.k8s.io/kwok/cmd/kwokctl"
)
