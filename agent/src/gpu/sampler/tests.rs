//! Age, end and log of readings, with a reader that needs no driver.

use super::super::field::Field;
use super::*;

fn mk_gpu(reasons: u64) -> Gpu {
    Gpu {
        fields: [(Field::ClocksEventReasons, reasons)].into(),
        ..Gpu::default()
    }
}

#[test]
fn an_old_reading_is_not_exported() {
    let at = Instant::now();
    let reading = Reading {
        gpus: vec![mk_gpu(0)],
        at,
    };
    assert_eq!(reading.clone().at(at + AGE_MAX), [mk_gpu(0)]);
    let late = reading.at(at + AGE_MAX + Duration::from_nanos(1));
    assert_eq!(faults(&late[0]), [Fault::Lost]);
    assert!(late[0].fields.is_empty(), "old values are not exported");
}

#[test]
fn the_thread_ends_with_its_sampler() {
    let (stop, stopped) = mpsc::sync_channel(0);
    let mut stop = Some(stop);
    let mut readings = 0;
    read_until(&stopped, Duration::from_millis(1), || {
        readings += 1;
        if readings == 3 {
            stop = None;
        }
    });
    assert_eq!(readings, 3);
}

#[test]
fn faults_are_logged_when_they_appear_and_when_they_clear() {
    let (cool, hot) = ([mk_gpu(0)], [mk_gpu(0x40)]);
    assert_eq!(changes(&[], &cool), []);
    assert_eq!(changes(&cool, &hot), [(&hot[0], vec!["hw_thermal"])]);
    assert_eq!(changes(&hot, &hot), []);
    assert_eq!(changes(&hot, &cool), [(&cool[0], vec![])]);
}

#[test]
fn a_sampler_without_readings_exports_nothing() {
    let (stop, _stopped) = mpsc::sync_channel(0);
    let (_tx, readings) = watch::channel(Reading {
        gpus: Vec::new(),
        at: Instant::now(),
    });
    let sampler = GpuSampler {
        readings,
        place: InstanceLabels::default(),
        stop: Mutex::new(Some(stop)),
    };
    assert!(sampler.families().is_empty());
}
