//! What a client gets from the functions of a program.

use std::sync::Arc;

use libris::{Catalog, Error, Json, Result};

#[path = "../../../sources/tests/transcripts/mod.rs"]
mod transcripts;

/// The weather stations of a town.
struct Weather;

#[derive(serde::Serialize)]
struct Report {
    station: String,
    celsius: i8,
}

#[libris::resources]
impl Weather {
    /// All stations, one per line.
    #[resource("weather://town/stations", title = "Stations", mime = "text/plain")]
    fn stations(&self) -> &str {
        "harbour\nstation square\n"
    }

    /// The last report of a station.
    #[resource("weather://town/reports/{station}")]
    fn report(&self, station: &str) -> Option<Json<Report>> {
        (station == "harbour").then(|| Json(Report { station: station.into(), celsius: -3 }))
    }

    /// The mean of the last days.
    #[resource("weather://town/mean{?days}")]
    fn mean(&self, days: Option<u8>) -> String {
        format!("The mean of {} days is 4 °C.", days.unwrap_or(1))
    }

    /// The picture of the last satellite.
    #[resource("weather://town/satellite", mime = "image/png")]
    fn satellite(&self) -> Result<Vec<u8>> {
        Err(Error::Unavailable("the satellite is behind the moon; try again later".into()))
    }

    /// The archive of all reports.
    #[resource("weather://town/archive")]
    fn archive(&self) -> std::io::Result<String> {
        Err(std::io::Error::other("the password is swordfish"))
    }

    #[complete("weather://town/reports/{station}", station)]
    fn station_names(&self) -> Vec<String> {
        ["harbour", "hill"].map(str::to_owned).into()
    }
}

#[tokio::test]
async fn what_a_client_gets() {
    let catalog = Catalog::new(vec![Arc::new(Weather)]);
    let mut transcript = transcripts::Transcript::of_catalog(&catalog);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("weather://town/reports/{station}", "station", "h").await;
    for uri in [
        "weather://town/stations",
        "weather://town/reports/harbour",
        "weather://town/mean?days=7",
        "weather://town/reports/hill",
        "weather://town/mean?days=week",
        "weather://town/mean?day=7",
        "weather://town/station",
        "weather://town/satellite",
        "weather://town/archive",
    ] {
        transcript.read(uri).await;
    }
    insta::assert_snapshot!("functions", transcript.text());
}
