use kube_scheduler_sdk::Quantity;

/// Go takes a suffix, a sign or a point alone for zero; here a quantity has a digit.
fn without_digits(text: &str) -> bool {
    !text.trim_start_matches(['+', '-']).trim_start_matches('.').starts_with(|c: char| c.is_ascii_digit())
}

#[test]
fn reads_what_kubernetes_reads() {
    let (mut read, mut refused) = (0, 0);
    for line in include_str!("quantities.tsv").lines() {
        let (text, expected) = line.split_once('\t').expect("two columns");
        let ours = text.parse::<Quantity>();
        if expected == "error" || without_digits(text) {
            assert!(ours.is_err(), "{text:?} was read as {ours:?}");
            refused += 1;
            continue;
        }
        // What no i128 holds is capped.
        let cap = if text.starts_with('-') { -i128::MAX } else { i128::MAX };
        assert_eq!(ours.map(Quantity::nano_value), Ok(expected.parse().unwrap_or(cap)), "{text:?}");
        read += 1;
    }
    assert!(read > 1000 && refused > 500, "{read} read, {refused} refused: is the table whole?");
}

#[test]
fn rounds_away_from_zero_and_caps() {
    let q = |text: &str| text.parse::<Quantity>().expect("a quantity");
    for (text, value, milli) in [
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("1n", 1, 1),
        ("0", 0, 0),
        ("1Ki", 1024, 1_024_000),
        ("1e30", i64::MAX, i64::MAX),
        ("-1e30", i64::MIN, i64::MIN),
        ("9Ei", i64::MAX, i64::MAX),
    ] {
        assert_eq!((q(text).value(), q(text).milli_value()), (value, milli), "{text}");
    }
    assert_eq!(q("1e99") + q("1e99"), q("1e99"), "sums saturate");
}

#[test]
fn prints_the_canonical_form() {
    let q = |text: &str| text.parse::<Quantity>().expect("a quantity");
    for (text, decimal, binary) in [
        ("1.5", "1500m", "1500m"),
        ("2", "2", "2"),
        ("2000", "2k", "2000"),
        ("1.5Gi", "1610612736", "1536Mi"),
        ("1Ei", "1152921504606846976", "1Ei"),
        ("0.000000001", "1n", "1n"),
        ("-3M", "-3M", "-3000000"),
        ("0", "0", "0"),
    ] {
        assert_eq!((q(text).to_string().as_str(), format!("{:#}", q(text)).as_str()), (decimal, binary), "{text}");
    }
}

#[test]
fn says_what_is_wrong() {
    for (text, part) in [
        ("1Ki5", "followed by none of"),
        ("", "no digits"),
        ("Ki", "no digits"),
        ("1e", "followed by none of"),
        ("1e1.5", "exponent"),
        ("1 Gi", "followed by none of"),
        ("1GB", "followed by none of"),
    ] {
        let error = text.parse::<Quantity>().expect_err(text).to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}
