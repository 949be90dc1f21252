//go:build tools

// Package metallb names MetalLB's programs, so that go.sum covers all that they need.
package metallb

import (
	_ "go.universe.tf/metallb/controller"
	_ "go.universe.tf/metallb/speaker"
)
