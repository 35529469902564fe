"""Pings over RDMA by ``rping`` of rdma-core: a session for each, which a signed request opens.

``rping`` knows no secret. So a node asks its peer, by the protocol of pings over UDP, for a server
(``asking``); only then the peer starts one, for this one client and a few seconds (``servers``).

A ping is one connection of the RDMA connection manager with a few exchanges: each is read and
written by RDMA, in one of two sizes. What is sent again by the NIC is not seen: what is lost is a
connection that does not come about, or that breaks.
"""
