//! Facts about division by a page's keys.

use super::multiplier;

/// As kernels divide.
fn quotient(number: u32, divisor: u32) -> u32 {
    let product = u64::from(multiplier(divisor)) * u64::from(number);
    let high = u32::try_from(product >> 32).expect("the upper half");
    (high + number) >> divisor.next_power_of_two().trailing_zeros()
}

#[test]
fn the_multiplier_divides_every_key_by_every_page_size() {
    let largest = (1u32 << 31) - 1;
    for divisor in (1..=300).chain([1023, 1024, 1025, 65_537, largest]) {
        let around = [
            0,
            1,
            divisor - 1,
            divisor,
            divisor + 1,
            7919,
            40_960,
            largest,
        ];
        let multiples = (1..100).map(|n| (largest / divisor / n) * divisor);
        let numbers = multiples.flat_map(|at| [at.saturating_sub(1), at, at + divisor / 2]);
        for number in around.into_iter().chain(numbers).filter(|n| *n <= largest) {
            assert_eq!(
                quotient(number, divisor),
                number / divisor,
                "{number} / {divisor}"
            );
        }
    }
}
