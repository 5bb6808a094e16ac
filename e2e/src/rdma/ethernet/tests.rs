//! The switch, without machines.

use super::*;

const A: Mac = [2, 0, 0, 0, 0, 1];
const B: Mac = [2, 0, 0, 0, 0, 2];
const ALL: Mac = [0xff; 6];

struct Stand {
    switch: Switch,
    nics: Vec<mpsc::Receiver<Arc<[u8]>>>,
}

fn mk_stand(names: &[&str]) -> Stand {
    let mut switch = Switch::default();
    let nics = names.iter().map(|name| {
        let (tx, frames_rx) = mpsc::channel(8);
        let port = switch.add_port(name);
        switch.ports[port].tx = Some(tx);
        frames_rx
    });
    let nics = nics.collect();
    Stand { switch, nics }
}

impl Stand {
    /// Sends a frame; the ports that it reached.
    fn send(&mut self, from: usize, dst: Mac, src: Mac) -> Vec<usize> {
        let frame = [dst, src].concat();
        self.switch.forward(from, frame.into());
        let nics = self.nics.iter_mut().enumerate();
        nics.filter_map(|(port, nic)| nic.try_recv().ok().map(|_| port))
            .collect()
    }
}

#[test]
fn a_frame_goes_to_all_until_its_destination_is_known() {
    let mut stand = mk_stand(&["a", "b", "c"]);
    assert_eq!(stand.send(0, B, A), [1, 2]);
    assert_eq!(stand.send(1, A, B), [0]);
    assert_eq!(stand.send(0, B, A), [1]);
    assert_eq!(stand.send(0, ALL, A), [1, 2]);
}

#[test]
fn a_cut_link_carries_nothing_either_way() {
    let mut stand = mk_stand(&["a", "b"]);
    stand.switch.ports[1].trouble = Trouble::Cut;
    assert_eq!(stand.send(0, ALL, A), [0_usize; 0]);
    assert_eq!(stand.send(1, ALL, B), [0_usize; 0]);
    stand.switch.ports[1].trouble = Trouble::None;
    assert_eq!(stand.send(1, ALL, B), [0]);
}

#[test]
fn a_bad_link_loses_every_nth_frame() {
    let mut stand = mk_stand(&["a", "b"]);
    stand.switch.ports[0].trouble = Trouble::LosesEvery(3);
    let arrived: Vec<bool> = (0..6).map(|_| !stand.send(0, ALL, A).is_empty()).collect();
    assert_eq!(arrived, [true, true, false, true, true, false]);
}

#[test]
fn half_a_frame_is_dropped() {
    let mut stand = mk_stand(&["a", "b"]);
    stand.switch.forward(0, vec![0xff; 8].into());
    assert!(stand.nics[1].try_recv().is_err());
}
