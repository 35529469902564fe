"""Pings between the exporters of a cluster: who reaches whom, with which sizes, how fast.

A thread answers the pings of others and sends its own, a few per second (``mesh``); a second one
looks peers up (``peer_list``), as a name server may not answer for long. What is sent by which
protocol is a file in ``protocols``; RDMA, which needs a tool beside Python, has a thread of its own
(``rdma``). Answers are never larger than what asked for them, and only who knows the shared secret
gets any (``packets``).
"""
