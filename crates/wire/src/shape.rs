//! Values of JSON that are read in passing, whatever they turn out to be.
//!
//! A value of the wrong kind is not an error of the whole message: it is noted, and told by whoever
//! needs the value.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that should be of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape<T> {
    Right(T),
    Wrong,
}

impl<T> Shape<T> {
    pub(crate) fn right(&self) -> Option<&T> {
        match self {
            Self::Right(value) => Some(value),
            Self::Wrong => None,
        }
    }
}

/// A value that should be text.
pub(crate) type Text<'a> = Shape<Cow<'a, str>>;

/// Reads what should be text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'de>>, D::Error> {
    deserializer.deserialize_any(TextVisitor)
}

/// Reads what should be an object.
pub(crate) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Shape<T>>, D::Error> {
    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

/// The kinds of values that are wrong for both. A null is as good as nothing.
macro_rules! wrong {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Some(Shape::Wrong))
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Some(Shape::Wrong))
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Some(Shape::Wrong))
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Some(Shape::Wrong))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Some(Shape::Wrong))
        }
    };
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<Text<'de>>;

    wrong!();

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Shape::Right(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Shape::Right(Cow::Owned(text.to_owned()))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(Shape::Wrong))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<Shape<T>>;

    wrong!();

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Some(Shape::Wrong))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(|value| Some(Shape::Right(value)))
    }
}
