"""``peerwatch-responder learn``: learns the models again, with a site's logs and corrections."""
