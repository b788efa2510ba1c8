"""Files of Arrow record batches: data sets, their manifests, writing them."""
