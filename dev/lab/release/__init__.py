"""A release: an archive of the image, the chart, plain manifests, an SBOM, notes and checksums."""
