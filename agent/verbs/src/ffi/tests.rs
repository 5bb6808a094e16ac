//! The declarations against rdma-core's header, the installed one or that of the folder `$PDSERVE_VERBS_INCLUDE`. A C
//! compiler evaluates the header; without compiler or header the test prints that it compared nothing.

use super::*;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// C expression and the value that the declarations here give it.
type Claim = (String, u64);

/// Claims on a structure: its size if `whole`, and the offset of each field.
macro_rules! structure {
    ($claims:ident, $c:literal, $rust:ty, $whole:literal, {$($field:tt: $path:literal),* $(,)?}) => {
        if $whole {
            $claims.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
        }
        $($claims.push((
            format!("offsetof(struct {}, {})", $c, $path),
            offset_of!($rust, $field) as u64,
        ));)*
    };
}

fn library_side() -> Vec<Claim> {
    let mut claims = Vec::new();
    structure!(claims, "ibv_context_ops", ContextOps, true, {
        poll_cq: "poll_cq", req_notify_cq: "req_notify_cq", post_send: "post_send",
        post_recv: "post_recv",
    });
    structure!(claims, "ibv_context", Context, false, { ops: "ops", async_fd: "async_fd" });
    structure!(claims, "ibv_mr", Mr, true, { lkey: "lkey", rkey: "rkey" });
    structure!(claims, "ibv_comp_channel", CompChannel, false, { fd: "fd" });
    structure!(claims, "ibv_cq", Cq, false, { cqe: "cqe" });
    structure!(claims, "ibv_qp", Qp, false, { qp_num: "qp_num" });
    claims
}

fn attributes() -> Vec<Claim> {
    let mut claims = Vec::new();
    structure!(claims, "ibv_device_attr", DeviceAttr, true, {
        fw_ver: "fw_ver", max_mr_size: "max_mr_size", max_qp: "max_qp", max_qp_wr: "max_qp_wr",
        device_cap_flags: "device_cap_flags", max_sge: "max_sge", max_cqe: "max_cqe",
        max_mr: "max_mr", _unused: "max_pd", max_pkeys: "max_pkeys",
        phys_port_cnt: "phys_port_cnt",
    });
    structure!(claims, "ibv_port_attr", PortAttr, false, {
        state: "state", max_mtu: "max_mtu", active_mtu: "active_mtu", gid_tbl_len: "gid_tbl_len",
        max_msg_sz: "max_msg_sz", pkey_tbl_len: "pkey_tbl_len", lid: "lid", sm_lid: "sm_lid",
        _unused: "lmc", link_layer: "link_layer", flags: "flags",
    });
    structure!(claims, "ibv_global_route", GlobalRoute, true, {
        dgid: "dgid", flow_label: "flow_label", sgid_index: "sgid_index", hop_limit: "hop_limit",
        traffic_class: "traffic_class",
    });
    structure!(claims, "ibv_ah_attr", AhAttr, true, {
        grh: "grh", dlid: "dlid", sl: "sl", src_path_bits: "src_path_bits",
        static_rate: "static_rate", is_global: "is_global", port_num: "port_num",
    });
    structure!(claims, "ibv_async_event", AsyncEvent, true, {
        element: "element", event_type: "event_type",
    });
    claims
}

fn queue_pairs() -> Vec<Claim> {
    let mut claims = Vec::new();
    structure!(claims, "ibv_qp_cap", QpCap, true, {
        max_send_wr: "max_send_wr", max_recv_wr: "max_recv_wr", max_send_sge: "max_send_sge",
        max_recv_sge: "max_recv_sge", max_inline_data: "max_inline_data",
    });
    structure!(claims, "ibv_qp_init_attr", QpInitAttr, true, {
        send_cq: "send_cq", recv_cq: "recv_cq", srq: "srq", cap: "cap", qp_type: "qp_type",
        sq_sig_all: "sq_sig_all",
    });
    structure!(claims, "ibv_qp_attr", QpAttr, true, {
        qp_state: "qp_state", path_mtu: "path_mtu", rq_psn: "rq_psn", sq_psn: "sq_psn",
        dest_qp_num: "dest_qp_num", qp_access_flags: "qp_access_flags", cap: "cap",
        ah_attr: "ah_attr", alt_ah_attr: "alt_ah_attr", pkey_index: "pkey_index",
        max_rd_atomic: "max_rd_atomic", max_dest_rd_atomic: "max_dest_rd_atomic",
        min_rnr_timer: "min_rnr_timer", port_num: "port_num", timeout: "timeout",
        retry_cnt: "retry_cnt", rnr_retry: "rnr_retry", rate_limit: "rate_limit",
    });
    claims
}

fn work() -> Vec<Claim> {
    let mut claims = Vec::new();
    structure!(claims, "ibv_sge", Sge, true, { addr: "addr", length: "length", lkey: "lkey" });
    structure!(claims, "ibv_send_wr", SendWr, true, {
        wr_id: "wr_id", next: "next", sg_list: "sg_list", num_sge: "num_sge", opcode: "opcode",
        send_flags: "send_flags", imm_data: "imm_data", remote_addr: "wr.rdma.remote_addr",
        rkey: "wr.rdma.rkey",
    });
    structure!(claims, "ibv_recv_wr", RecvWr, true, {
        wr_id: "wr_id", next: "next", sg_list: "sg_list", num_sge: "num_sge",
    });
    structure!(claims, "ibv_wc", Wc, true, {
        wr_id: "wr_id", status: "status", opcode: "opcode", vendor_err: "vendor_err",
        byte_len: "byte_len", imm_data: "imm_data", qp_num: "qp_num", wc_flags: "wc_flags",
    });
    claims
}

fn constants() -> Vec<Claim> {
    let named = crate::status::NAMES.iter().zip(0..);
    let statuses = named.map(|(&(name, _), code): (_, u64)| (name.to_owned(), code));
    let listed = CONSTANTS.iter();
    let listed = listed.map(|&(name, value)| (name.to_owned(), u64::from(value)));
    listed.chain(statuses).collect()
}

/// The header's value of each expression, in order; `None` if it cannot be evaluated.
fn header_says(expressions: &[String]) -> Option<Vec<u64>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("ask.c"), folder.path().join("ask"));
    let asked: String = expressions
        .iter()
        .map(|e| format!("    printf(\"%llu\\n\", (unsigned long long)({e}));\n"))
        .collect();
    let includes = "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\n";
    std::fs::write(&source, format!("{includes}int main(void) {{\n{asked}}}\n"))
        .expect("the folder can be written");
    let include = std::env::var_os("PDSERVE_VERBS_INCLUDE");
    let probe = |args: &[&str]| {
        let mut compiler = Command::new("cc");
        if let Some(folder) = &include {
            compiler.arg("-I").arg(folder);
        }
        compiler.args(args).arg(&source).output().ok()
    };
    if !probe(&["-E"])?.status.success() {
        return None;
    }
    let program_path = program.to_str().expect("temporary paths are UTF-8");
    let built = probe(&["-o", program_path])?;
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "the header lacks a name that is used here: {complaint}"
    );
    let output = Command::new(program).output().expect("what was built runs");
    let text = String::from_utf8(output.stdout).expect("numbers are UTF-8");
    Some(
        text.lines()
            .map(|l| l.parse().expect("a number a line"))
            .collect(),
    )
}

#[test]
fn declarations_agree_with_the_installed_header() {
    let claims = [
        library_side(),
        attributes(),
        queue_pairs(),
        work(),
        constants(),
    ]
    .concat();
    let expressions: Vec<String> = claims
        .iter()
        .map(|(expression, _)| expression.clone())
        .collect();
    let Some(said) = header_says(&expressions) else {
        println!("nothing compared: no C compiler, or no infiniband/verbs.h (libibverbs-dev)");
        return;
    };
    assert_eq!(said.len(), claims.len());
    let header: Vec<Claim> = expressions.into_iter().zip(said).collect();
    assert_eq!(claims, header);
    println!(
        "{} sizes, offsets and constants agree with the header",
        header.len()
    );
}
