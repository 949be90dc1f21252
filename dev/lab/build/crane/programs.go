//go:build tools

// Package programs names what the lab builds, so that go.sum covers all that it needs.
package programs

import _ "github.com/google/go-containerregistry/cmd/crane"
