//! Colours that stay apart: one per gang, the same at every run.

/// The colour of the gang of this index, as `#rrggbb`.
///
/// Hues step by the golden angle, so that any number of neighbours differ; lightness alternates in three steps.
pub(super) fn gang(index: usize) -> String {
    let hue = (index * 1_375 + 2_100) % 3_600; // tenths of a degree
    let lightness = [520, 420, 600][index / 8 % 3];
    hsl(i64::try_from(hue).unwrap_or(0), 620, lightness)
}

/// Integer arithmetic, so that every machine writes the same bytes. Hue in tenths of a degree, the rest in thousandths.
fn hsl(hue: i64, saturation: i64, lightness: i64) -> String {
    let chroma = (1000 - (2 * lightness - 1000).abs()) * saturation / 1000;
    let second = chroma * (600 - (hue % 1200 - 600).abs()) / 600;
    let (r, g, b) = match hue / 600 {
        0 => (chroma, second, 0),
        1 => (second, chroma, 0),
        2 => (0, chroma, second),
        3 => (0, second, chroma),
        4 => (second, 0, chroma),
        _ => (chroma, 0, second),
    };
    let floor = lightness - chroma / 2;
    let byte = |v: i64| ((v + floor) * 255 / 1000).clamp(0, 255);
    format!("#{:02x}{:02x}{:02x}", byte(r), byte(g), byte(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_right_and_differ() {
        assert_eq!(hsl(0, 1000, 500), "#ff0000");
        assert_eq!(hsl(1200, 1000, 500), "#00ff00");
        assert_eq!(hsl(2400, 1000, 500), "#0000ff");
        assert_eq!(hsl(0, 0, 1000), "#ffffff");
        let colours: std::collections::BTreeSet<_> = (0..48).map(gang).collect();
        assert_eq!(colours.len(), 48);
    }
}
