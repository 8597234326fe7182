//! Quantities.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A quantity as written, such as `500m` or `2Gi`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct Quantity {
    /// The text.
    #[prost(string, tag = "1")]
    pub string: String,
}

impl Quantity {
    /// Its value, exact. A text that isn't a quantity (reading refuses it) is nothing.
    #[must_use]
    pub fn exact(&self) -> kube_scheduler_sdk::Quantity {
        self.string.parse().unwrap_or(kube_scheduler_sdk::Quantity::ZERO)
    }
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self { string: text.to_owned() }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.string)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The name lets a reader that knows more of the input (such as its lines) see that this is a quantity.
        deserializer.deserialize_newtype_struct("Quantity", QuantityVisitor)
    }
}

struct QuantityVisitor;

impl<'de> Visitor<'de> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity: a number, or a string such as 500m or 2Gi")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        match text.parse::<kube_scheduler_sdk::Quantity>() {
            Ok(_) => Ok(Quantity { string: text.to_owned() }),
            Err(e) => Err(E::custom(e)),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity { string: number.to_string() })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity { string: number.to_string() })
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Quantity, D::Error> {
        deserializer.deserialize_any(self)
    }
}
