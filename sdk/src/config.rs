use core::str;

use crate::Status;
use crate::buffer::HostBytes;

/// The plugin's `guestConfig`, as it stands in the scheduler's configuration. It never changes while the scheduler runs.
#[derive(Debug)]
pub struct Config(HostBytes);

impl Config {
    pub(crate) const fn new(bytes: HostBytes) -> Self {
        Self(bytes)
    }

    /// The text; empty when nothing is configured.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn as_str(&self) -> Result<&str, Status> {
        str::from_utf8(&self.0)
            .map_err(|e| Status::error(format!("guestConfig is not UTF-8 at byte {}", e.valid_up_to())))
    }

    /// Reads the text as JSON; an empty text is the default.
    ///
    /// ```
    /// use kube_scheduler_sdk::prelude::*;
    ///
    /// #[derive(Default, serde::Deserialize)]
    /// #[serde(deny_unknown_fields, default)]
    /// struct Settings {
    ///     zones: Vec<String>,
    /// }
    ///
    /// # struct MyPlugin(Settings);
    /// impl Plugin for MyPlugin {
    ///     fn new(config: &Config) -> Result<Self, Status> {
    ///         Ok(Self(config.parse()?))
    ///     }
    /// }
    /// ```
    ///
    /// With `#[serde(deny_unknown_fields)]` a misspelt field is refused by name; without it, it is ignored.
    ///
    /// # Errors
    /// What is wrong, by field, line and column.
    #[cfg(feature = "serde")]
    pub fn parse<T: serde::de::DeserializeOwned + Default>(&self) -> Result<T, Status> {
        let text = self.as_str()?;
        if text.trim_ascii().is_empty() {
            return Ok(T::default());
        }
        crate::json::from_slice(text.as_bytes()).map_err(|status| status.context("guestConfig"))
    }
}
