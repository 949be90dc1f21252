//go:build tools

// Package programs names what the lab builds, so that go.sum covers all that it needs.
package programs

import _ "helm.sh/helm/v4/cmd/helm"
