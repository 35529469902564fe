"""RDMA NIC ports from sysfs: bytes, packets, state, errors and congestion control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, register
from peerwatch_exporter.sources.rdma import RDMA_ROOT, port_interface, rdma_ports
from peerwatch_exporter.sources.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

# Metric by counter file, below ports/N.
_COUNTERS = {
    "counters/port_rcv_packets": "nic_receive_packets_total",
    "counters/port_xmit_packets": "nic_transmit_packets_total",
    "counters/link_downed": "nic_link_downed_total",
    "counters/link_error_recovery": "nic_link_recoveries_total",
    "counters/port_xmit_wait": "nic_transmit_wait_ticks_total",
    "hw_counters/np_cnp_sent": "nic_cnp_sent_total",
    "hw_counters/rp_cnp_handled": "nic_cnp_handled_total",
    "hw_counters/rp_cnp_ignored": "nic_cnp_ignored_total",
    "hw_counters/np_ecn_marked_roce_packets": "nic_ecn_marked_packets_total",
    "hw_counters/out_of_sequence": "nic_out_of_sequence_packets_total",
}
# InfiniBand counts data in 32-bit words, on every link layer.
_WORD_BYTES = 4
_WORDS = {
    "counters/port_rcv_data": "nic_receive_bytes_total",
    "counters/port_xmit_data": "nic_transmit_bytes_total",
}
_PORT_ERRORS = (
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
# An allow-list: drivers add counters that are not errors, and each is a series per port.
_RDMA_ERRORS = (
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "duplicate_request",
    "out_of_buffer",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rx_icrc_encapsulated",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
)
_TYPED = {
    "nic_port_errors_total": ("counters", _PORT_ERRORS),
    "nic_rdma_errors_total": ("hw_counters", _RDMA_ERRORS),
}


@register("nic", "RDMA NIC bytes, packets, link state, errors, ECN and CNP counters (sysfs).")
class NicCollector:
    """Reads every port; a counter that cannot be read is left out alone."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._sysfs = Sysfs(sources.paths.sysfs)

    def collect(self) -> Iterable[Family]:
        """Return the NIC families.

        Raises
        ------
        NoData
            If the node has no RDMA device.
        """
        ports = list(rdma_ports(self._sysfs))
        if not ports:
            raise NoData(f"There is no RDMA device in {str(self._sysfs.root / RDMA_ROOT)!r}.")
        yield self._info(ports)
        yield from self._states(ports)
        for path, name in _WORDS.items():
            yield self._counter(name, path, ports, _WORD_BYTES)
        for path, name in _COUNTERS.items():
            yield self._counter(name, path, ports, 1)
        for name, (directory, kinds) in _TYPED.items():
            yield self._typed(name, directory, kinds, ports)

    def _info(self, ports: Iterable[tuple[str, str]]) -> Family:
        info = family("nic_port_info")
        for device, port in ports:
            base = f"{RDMA_ROOT}/{device}"
            labels = [
                device,
                port,
                self._sysfs.text(f"{base}/ports/{port}/link_layer") or "",
                port_interface(self._sysfs, device, port),
                self._sysfs.link_name(f"{base}/device") or "",
                self._sysfs.text(f"{base}/fw_ver") or "",
                self._sysfs.text(f"{base}/board_id") or "",
            ]
            info.add_metric(labels, 1)
        return info

    def _states(self, ports: Iterable[tuple[str, str]]) -> Iterable[Family]:
        state = family("nic_port_state")
        physical = family("nic_port_physical_state")
        rate = family("nic_port_rate_bytes_per_second")
        for device, port in ports:
            base = f"{RDMA_ROOT}/{device}/ports/{port}"
            for result, value in (
                (state, self._sysfs.state(f"{base}/state")),
                (physical, self._sysfs.state(f"{base}/phys_state")),
                (rate, self._sysfs.bytes_per_second(f"{base}/rate")),
            ):
                if value is not None:
                    result.add_metric([device, port], value)
        return state, physical, rate

    def _counter(
        self, name: str, path: str, ports: Iterable[tuple[str, str]], factor: int
    ) -> Family:
        result = family(name)
        for device, port in ports:
            value = self._sysfs.integer(f"{RDMA_ROOT}/{device}/ports/{port}/{path}")
            if value is not None:
                result.add_metric([device, port], value * factor)
        return result

    def _typed(
        self, name: str, directory: str, kinds: Iterable[str], ports: Iterable[tuple[str, str]]
    ) -> Family:
        result = family(name)
        for device, port in ports:
            base = f"{RDMA_ROOT}/{device}/ports/{port}/{directory}"
            for kind in kinds:
                value = self._sysfs.integer(f"{base}/{kind}")
                if value is not None:
                    result.add_metric([device, port, kind], value)
        return result
