//! The weather as resources: cities that depend on their country, and answers that are kept.
//!
//! ```sh
//! cargo run -p libris --example weather
//! ```

use libris::{Completion, Context, Error, Identity, Instance, Json, Result};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Where it is measured.
const CITIES: [(&str, &str, i32); 5] = [
    ("France", "Lyon", 24),
    ("France", "Paris", 21),
    ("Norway", "Oslo", 14),
    ("Norway", "Bergen", 11),
    ("USA", "Park City", 18),
];

struct Weather;

#[derive(Serialize)]
struct Forecast {
    city: String,
    days: Vec<i32>,
    unit: &'static str,
}

/// A number of days, of which nobody knows more than ten.
struct Days(usize);

impl FromStr for Days {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(days @ 1..=10) => Ok(Self(days)),
            _ => Err("say 1 to 10 days"),
        }
    }
}

#[libris::resources]
impl Weather {
    /// The countries with weather.
    #[resource("weather://countries", title = "Countries")]
    fn countries(&self) -> Json<Vec<&'static str>> {
        let mut all: Vec<_> = CITIES.iter().map(|(country, ..)| *country).collect();
        all.dedup();
        Json(all)
    }

    /// What the weather will be like.
    #[resource("weather://forecast/{country}/{city}{?days}", title = "Forecast", cache = "5m")]
    async fn forecast(
        &self,
        country: &str,
        city: &str,
        days: Option<Days>,
        context: &Context,
    ) -> Result<Json<Forecast>> {
        let (.., now) = find(country, city)?;
        let mut forecast = Forecast { city: city.into(), days: Vec::new(), unit: "°C" };
        let Days(days) = days.unwrap_or(Days(3));
        for day in 0..days {
            context.progress(day as u64, Some(days as u64));
            tokio::time::sleep(Duration::from_millis(20)).await;
            forecast.days.push(now + (day as i32 * 7) % 5 - 2);
        }
        Ok(Json(forecast))
    }

    /// Warnings, for those who are known.
    #[resource("weather://warnings")]
    fn warnings(&self, who: Identity) -> String {
        format!("{}, take an umbrella.", who.name())
    }

    #[complete("weather://forecast/{country}/{city}{?days}", country)]
    fn country(&self) -> Vec<&'static str> {
        self.countries().0
    }

    #[complete("weather://forecast/{country}/{city}{?days}", city)]
    async fn city(&self, typed: &str, country: Option<&str>) -> Completion {
        let all = CITIES.iter().filter(|(there, ..)| country.is_none_or(|country| country == *there));
        Completion::of(all.map(|(_, city, _)| *city), typed, Completion::LIMIT)
    }

    #[list("weather://forecast/{country}/{city}{?days}")]
    fn forecasts(&self) -> Vec<Instance> {
        let forecast = |(country, city, _): &(&str, &str, i32)| {
            Instance::new()
                .variable("country", country)
                .variable("city", city)
                .title(format!("Weather in {city}"))
        };
        CITIES.iter().map(forecast).collect()
    }
}

/// What is known of a city.
fn find(country: &str, city: &str) -> Result<&'static (&'static str, &'static str, i32)> {
    let known = CITIES.iter().find(|(there, name, _)| *there == country && *name == city);
    known.ok_or_else(|| Error::invalid(format!("nobody measures the weather in {}", Place(country, city))))
}

struct Place<'a>(&'a str, &'a str);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, `{}`", self.1, self.0)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(address) => libris::serve(Weather).name("weather").http(address).await,
        None => libris::serve(Weather).name("weather").await,
    }
}
