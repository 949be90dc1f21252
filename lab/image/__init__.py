"""Our image, made and run without a container engine: the Dockerfile's own instructions, layer on layer."""
