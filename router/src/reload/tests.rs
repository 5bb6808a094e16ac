//! Facts about values that follow their files.

use super::*;
use parking_lot::Mutex;

/// Stands for files whose content is a number.
#[derive(Clone, Default)]
struct Numbers {
    content: Arc<Mutex<String>>,
    reported: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no number")]
struct NoNumber(String);

impl Source for Numbers {
    type Content = String;
    type Value = u32;
    type Error = NoNumber;
    const NAME: &'static str = "numbers";

    fn read(&self) -> Result<String, NoNumber> {
        Ok(self.content.lock().clone())
    }

    fn parse(&self, content: &String) -> Result<u32, NoNumber> {
        content.parse().map_err(|_| NoNumber(content.clone()))
    }

    fn report(&self, content: &String, _metrics: &Metrics) {
        self.reported.lock().push(content.clone());
    }
}

impl Numbers {
    fn write(&self, text: &str) {
        text.clone_into(&mut self.content.lock());
    }
}

fn mk_numbers(text: &str) -> Numbers {
    let numbers = Numbers::default();
    numbers.write(text);
    numbers
}

/// Long enough for a change to be applied.
async fn two_polls() {
    for _ in 0..2 {
        sleep(POLL_INTERVAL + Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_at_the_start() {
    let refused = Reloaded::open(mk_numbers("x"), &Arc::default(), &Vitals::default());
    assert_eq!(refused.err().unwrap().to_string(), "\"x\" is no number");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_applied_and_a_bad_one_left_alone() {
    let numbers = mk_numbers("1");
    let metrics = Arc::<Metrics>::default();
    let value = Reloaded::open(numbers.clone(), &metrics, &Vitals::default()).unwrap();
    for (text, expected) in [("2", 2), ("x", 2), ("", 2), ("3", 3)] {
        numbers.write(text);
        let old = value.get();
        // The files are read on threads, which a paused clock does not wait for.
        for _ in 0..100 {
            two_polls().await;
            if *value.get() != *old {
                break;
            }
        }
        assert_eq!(*value.get(), expected, "after {text:?}");
    }
    assert_eq!(*numbers.reported.lock(), ["1", "2", "3"]);
}

#[test]
fn only_what_two_polls_agree_on_is_applied_and_once() {
    let mut state = PollState::new(1);
    assert_eq!(state.settle(Ok(1)), None);
    assert_eq!(state.settle(Ok(2)), None, "may be half of an edit");
    assert_eq!(state.settle(Ok(3)), None, "still being edited");
    assert_eq!(state.settle(Ok(3)), Some(&Ok(3)));
    assert_eq!(state.settle(Ok(3)), None);
    let gone = || Err("gone".to_owned());
    assert_eq!(state.settle(gone()), None);
    assert_eq!(state.settle(gone()), Some(&gone()));
    assert_eq!(state.settle(gone()), None, "logged once");
    assert_eq!(state.settle(Ok(3)), None);
    assert_eq!(state.settle(Ok(3)), Some(&Ok(3)));
}
